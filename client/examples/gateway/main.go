// Command gateway is a gateway to LLM providers in small: it holds its tenant's
// keys by the Go client, follows a rotation and a route, and lives through an
// outage of a provider. The providers are two servers of its own on loopback.
//
//	go run ./client/examples/gateway -address http://127.0.0.1:8440 -credential-file .sluice/demo.credential
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/client"
)

func main() {
	address := flag.String("address", "http://127.0.0.1:8440", "URL of the service")
	file := flag.String("credential-file", "", "file with a credential that may make secrets and routes")
	flag.Parse()
	if err := run(*address, *file); err != nil {
		log.Fatal(err)
	}
}

func run(address, file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	token, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{Address: address, Credential: client.NewToken(strings.TrimSpace(string(token)))})
	if err != nil {
		return err
	}
	// What an administrator does: two keys, and a route over two providers.
	one, two := newProvider("sk-one-1"), newProvider("sk-two-1")
	defer one.server.Close()
	defer two.server.Close()
	name := "gateway-" + strings.ToLower(time.Now().UTC().Format("150405.000000")[7:])
	first, err := c.CreateSecret(ctx, client.CreateSecretInput{Path: name + "/one", Provider: "openai", Value: client.NewValue("sk-one-1")})
	if err != nil {
		return err
	}
	if _, err := c.CreateSecret(ctx, client.CreateSecretInput{Path: name + "/two", Provider: "openai", Value: client.NewValue("sk-two-1")}); err != nil {
		return err
	}
	// A route's addresses are public ones; the servers here stand for them.
	if _, err := c.PutRoute(ctx, name, client.PutRouteInput{
		Models:    []string{"m"},
		Primary:   client.RouteTarget{Name: "one", Provider: "openai", BaseURL: "https://93.184.215.14/v1", Region: "eu", Secret: name + "/one"},
		Fallbacks: []client.RouteTarget{{Name: "two", Provider: "openai", BaseURL: "https://93.184.215.15/v1", Region: "eu", Secret: name + "/two"}},
	}); err != nil {
		return err
	}

	secrets, err := c.Secrets(client.SecretsOptions{})
	if err != nil {
		return err
	}
	defer secrets.Close()
	g := &gateway{client: c, route: name, targets: map[string]*target{
		"one": newTarget(secrets, name+"/one", one), "two": newTarget(secrets, name+"/two", two),
	}}
	if err := g.follow(ctx); err != nil {
		return err
	}
	g.tell("with the first key", g.calls(ctx, 20))

	// The provider gets a second key, and for a while takes both.
	one.accept("sk-one-2")
	version, err := c.AddSecretVersion(ctx, first.ID, client.AddSecretVersionInput{Value: client.NewValue("sk-one-2")})
	if err != nil {
		return err
	}
	if _, err := c.ActivateSecret(ctx, first.ID, client.ActivateSecretInput{Version: version.Version}); err != nil {
		return err
	}
	g.tell("while the key is rotated", g.calls(ctx, 20))
	// The old one goes when no gateway has it any more.
	for g.targets["one"].version() != version.Version && ctx.Err() == nil {
		g.calls(ctx, 1)
		time.Sleep(10 * time.Millisecond)
	}
	one.refuse("sk-one-1")
	g.tell("when the old key is refused", g.calls(ctx, 20))

	one.stop()
	total := newTally()
	for range 6 {
		total.add(g.calls(ctx, 1))
		if err := g.follow(ctx); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	g.tell("while the provider is down", total)
	for _, t := range g.order.Targets {
		fmt.Printf("the route says: %s is %s\n", t.Target, t.State)
	}
	return nil
}
