package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// Sign an order with an SM2 key, and check the signature.
func Example() {
	c, err := client.New(client.Options{
		Address:    "https://kms.example.com:8440",
		Credential: client.NewToken(os.Getenv("SLUICE_CREDENTIAL")),
		UserAgent:  "billing/1.4",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	const key = "payments/orders"
	_, err = c.CreateKey(ctx, client.CreateKeyInput{Name: key, Spec: client.SpecSM2})
	if err != nil && !errors.Is(err, client.ErrConflict) {
		log.Fatal(err)
	}
	message := []byte("order 4711: 12 sacks of flour")
	signed, err := c.Sign(ctx, key, client.SignInput{Message: message})
	if err != nil {
		log.Fatal(err)
	}
	checked, err := c.Verify(ctx, key, client.VerifyInput{
		SignInput: client.SignInput{Message: message},
		Signature: signed.Signature,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checked.Valid, signed.Cost, signed.Protection)
}

// Encrypt much data locally, under a data key of the service.
func ExampleClient_DataKey() {
	var c *client.Client // from New
	ctx := context.Background()

	dk, err := c.DataKey(ctx, "backups", client.DataKeyInput{Spec: client.SpecAES256, AAD: []byte("host-17")})
	if err != nil {
		log.Fatal(err)
	}
	defer clear(dk.Plaintext)
	// Encrypt with dk.Plaintext, for instance by cipher.NewGCMWithRandomNonce,
	// and keep dk.Ciphertext beside the data. To read it again:
	opened, err := c.Decrypt(ctx, "backups", client.DecryptInput{Ciphertext: dk.Ciphertext, AAD: []byte("host-17")})
	if err != nil {
		log.Fatal(err)
	}
	defer clear(opened.Plaintext)
}

// Wait as long as a rate limit says, and no longer than that.
func ExampleError() {
	var c *client.Client // from New
	_, err := c.GetKey(context.Background(), "payments/orders")
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == client.ErrQuotaExceeded {
		for _, reason := range e.Reasons {
			fmt.Println(reason.Code, reason.Need, "of", reason.Limit)
		}
		fmt.Println("again in", e.RetryAfter, "request", e.RequestID)
	}
}

// Loop over all keys of a project.
func ExampleClient_ListKeys() {
	var c *client.Client // from New
	for key, err := range c.ListKeys(context.Background(), client.ListKeysInput{Project: "payments"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key.Name, key.Spec, key.State)
	}
}
