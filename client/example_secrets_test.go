package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/client/outcome"
)

// exampleService is a service with the secret llm/openai, and a client of it.
func exampleService() *client.Client {
	f := newFake()
	f.set("llm/openai", 7)
	c, err := client.New(client.Options{
		Address: "https://kms.example.com:8440", Credential: client.NewToken(testToken), HTTPClient: &http.Client{Transport: f},
	})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Ask a provider with a key that the program never holds.
func ExampleHandle_Transport() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		fmt.Fprintf(w, "the key has %d characters", len(key))
	}))
	defer provider.Close()
	c := exampleService() // client.New
	secrets, err := c.Secrets(client.SecretsOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer secrets.Close()

	llm := &http.Client{Transport: secrets.Handle("llm/openai").Transport(client.TransportOptions{
		Observe: func(a client.Attempt) { fmt.Println(a.Path, "version", a.Version, a.Class) },
	})}
	res, err := llm.Post(provider.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(body))
	// Output:
	// llm/openai version 7 ok
	// the key has 22 characters
}

// Hold the secrets that a program needs before it serves, and use one.
func ExampleHandle_Do() {
	c := exampleService() // client.New
	secrets, err := c.Secrets(client.SecretsOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer secrets.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := secrets.Preload(ctx, "llm/openai"); err != nil {
		log.Fatal(err)
	}

	openAI := secrets.Handle("llm/openai") // kept: Get and Do take nanoseconds
	err = openAI.Do("request-4711", func(key client.Value) error {
		fmt.Println("the key is", key)
		// Ask the provider with key.Reveal(), and say what came of it.
		answer := outcome.Of(outcome.OpenAI, 429, http.Header{"Retry-After": {"7"}}, nil, time.Now())
		if answer.Class != outcome.OK {
			return &client.ProviderError{Verdict: answer}
		}
		return nil
	})
	if refused, ok := errors.AsType[*client.ProviderError](err); ok {
		fmt.Println(refused.Class, "of", refused.Scope, "for", refused.Cool)
	}
	// Output:
	// the key is [redacted]
	// rate_limit of key+model for 7s
}

// Tell a secret that is gone from a service that is.
func ExampleHandle_Get() {
	c := exampleService() // client.New
	secrets, err := c.Secrets(client.SecretsOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer secrets.Close()
	_, err = secrets.Handle("llm/nobody").Await(context.Background(), "request-4711")
	switch {
	case errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrDenied), errors.Is(err, client.ErrRevoked):
		fmt.Println("it is not to be used")
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("try again later")
	}
	// Output: it is not to be used
}
