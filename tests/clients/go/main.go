// Google's Go client as a subscriber that tests/clients/run.py controls. receiver.py beside this
// folder describes the task, the commands and the lines.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type Task struct {
	Endpoint     string
	Project      string
	Subscription string
	Messages     int
	NackEvery    int `json:"nack_every"`
	Hold         string
	Answer       string
}

var outcomes = map[pubsub.AcknowledgeStatus]string{
	pubsub.AcknowledgeStatusSuccess:            "SUCCESS",
	pubsub.AcknowledgeStatusPermissionDenied:   "PERMISSION_DENIED",
	pubsub.AcknowledgeStatusFailedPrecondition: "FAILED_PRECONDITION",
	pubsub.AcknowledgeStatusInvalidAckID:       "INVALID_ACK_ID",
	pubsub.AcknowledgeStatusOther:              "OTHER",
}

var (
	begin  = time.Now()
	output sync.Mutex
)

func tell(words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%.3f %s", time.Since(begin).Seconds(), fmt.Sprintln(words...))
}

func main() {
	var task Task
	must(json.Unmarshal([]byte(os.Args[1]), &task))
	os.Setenv("PUBSUB_EMULATOR_HOST", task.Endpoint)
	wire := &Wire{ackIDs: map[string]string{}, failures: map[string]int{}, settled: map[string]bool{}}
	client, err := pubsub.NewClient(
		context.Background(), task.Project,
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(wire.stream)),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(wire.unary)),
	)
	must(err)
	subscriber := client.Subscriber(task.Subscription)
	if task.Hold != "" {
		subscriber.ReceiveSettings.MaxOutstandingMessages = 2 * task.Messages
	}

	receiver := &Receiver{task: task, wire: wire, answer: make(chan struct{}), seen: map[int]bool{}}
	running, stop := context.WithCancel(context.Background())
	go func() {
		for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
			switch commands.Text() {
			case "answer":
				close(receiver.answer)
			case "stop":
				stop()
			}
		}
	}()
	begin = time.Now()
	if err := subscriber.Receive(running, receiver.receive); err != nil {
		log.Print(err)
	}
	receiver.held.Wait()
}

type Receiver struct {
	task   Task
	wire   *Wire
	answer chan struct{}
	held   sync.WaitGroup
	mutex  sync.Mutex
	seen   map[int]bool
}

func (r *Receiver) receive(_ context.Context, message *pubsub.Message) {
	number, err := strconv.Atoi(string(message.Data))
	must(err)
	tell("delivered", number, r.wire.ackID(message.ID))
	first := r.isFirst(number)
	switch {
	case r.task.Hold == "":
		nack := first && r.task.NackEvery > 0 && number%r.task.NackEvery == 0
		settle(message, number, nack)
	case !first && r.task.Answer == "nack":
		message.Ack()
	case !first:
		message.Nack()
	default:
		r.held.Add(1)
		wait := func() {
			defer r.held.Done()
			<-r.answer
			settle(message, number, r.task.Answer == "nack")
		}
		if r.task.Hold == "inside" {
			wait()
		} else {
			go wait()
		}
	}
}

func (r *Receiver) isFirst(number int) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	first := !r.seen[number]
	r.seen[number] = true
	return first
}

// settle answers a message and waits until the client reports the result, as Google's samples do.
func settle(message *pubsub.Message, number int, nack bool) {
	name, answer := "ack", message.AckWithResult
	if nack {
		name, answer = "nack", message.NackWithResult
	}
	tell(name, number)
	outcome, _ := answer().Get(context.Background())
	tell(name+"-result", number, outcomes[outcome])
}

// The client repeats a failed receipt so many times, and then drops the message.
const maxRetries = 4

// Wire watches the calls, because a message does not show its ack id, and because nothing else shows
// the messages that the client drops.
type Wire struct {
	mutex    sync.Mutex
	ackIDs   map[string]string // by message id
	failures map[string]int    // of receipts, by ack id
	settled  map[string]bool   // ack ids whose receipts have a final answer
}

func (w *Wire) ackID(message string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.ackIDs[message]
}

func (w *Wire) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	return &watchedStream{stream, w}, err
}

type watchedStream struct {
	grpc.ClientStream
	wire *Wire
}

func (s *watchedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if response, ok := message.(*pb.StreamingPullResponse); ok && err == nil {
		s.wire.mutex.Lock()
		defer s.wire.mutex.Unlock()
		for _, received := range response.ReceivedMessages {
			s.wire.ackIDs[received.Message.MessageId] = received.AckId
		}
	}
	return err
}

func (w *Wire) unary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	err := call(ctx, method, request, reply, conn, options...)
	if extension, ok := request.(*pb.ModifyAckDeadlineRequest); ok && extension.AckDeadlineSeconds > 0 {
		w.extended(extension.AckIds, err)
	}
	return err
}

// extended counts the messages that the client drops after the answer to their receipts. A message
// whose ack id is refused for good is not counted: it comes again with another id.
func (w *Wire) extended(ids []string, err error) {
	reasons := reasonsOf(err)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, id := range ids {
		switch {
		case w.settled[id]:
			// This is not the receipt.
		case err == nil || strings.HasPrefix(reasons[id], "PERMANENT_FAILURE"):
			w.settled[id] = true
		case w.failures[id] == maxRetries || reasons[id] == "" && !isRetried(status.Code(err)):
			w.settled[id] = true
			tell("dropped", -1)
		default:
			w.failures[id]++
		}
	}
}

// isRetried tells whether the client repeats a request after this error, with all ids that the
// error does not name.
func isRetried(code codes.Code) bool {
	switch code {
	case codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable:
		return true
	}
	return false
}

// reasonsOf returns the reasons that an error states, by ack id.
func reasonsOf(err error) map[string]string {
	reasons := map[string]string{}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			maps.Copy(reasons, info.Metadata)
		}
	}
	return reasons
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
