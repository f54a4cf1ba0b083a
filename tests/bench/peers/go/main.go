// Google's Go client, measured like the clients of tests/bench/client.py:
//
//	go run . localhost:PORT --seconds 3 --max-messages 40000
//
// Prints its figures as one JSON object. The clock starts a second after the first message.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

const subscription = "projects/bench/subscriptions/bench-0"

func usage() (cpuSeconds, peakMebibytes float64) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9, float64(used.Maxrss) / 1024
}

func main() {
	flags := flag.NewFlagSet("peer", flag.ExitOnError)
	seconds := flags.Float64("seconds", 3, "how long the rate is taken")
	window := flags.Int("max-messages", 1000, "the window of flow control")
	// Other clients have these, too. Here there is one mode and one subscription.
	flags.String("mode", "rate", "only rate")
	flags.Int("messages", 0, "unused")
	flags.Int("subscriptions", 1, "only 1")
	if err := flags.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	os.Setenv("PUBSUB_EMULATOR_HOST", os.Args[1])
	client, err := pubsub.NewClient(context.Background(), "bench")
	if err != nil {
		log.Fatal(err)
	}
	subscriber := client.Subscriber(subscription)
	subscriber.ReceiveSettings.MaxOutstandingMessages = *window

	var count atomic.Int64
	go func() {
		handle := func(_ context.Context, message *pubsub.Message) {
			message.Ack()
			count.Add(1)
		}
		log.Fatal(subscriber.Receive(context.Background(), handle))
	}()
	for count.Load() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(time.Second)
	before, began := count.Load(), time.Now()
	cpuBefore, _ := usage()
	time.Sleep(time.Duration(*seconds * float64(time.Second)))
	messages := float64(count.Load() - before)
	cpu, peak := usage()
	fmt.Printf(
		"{\"rate\": %f, \"cpu_micros\": %f, \"peak_mebibytes\": %f}\n",
		messages/time.Since(began).Seconds(), (cpu-cpuBefore)/messages*1e6, peak,
	)
}
