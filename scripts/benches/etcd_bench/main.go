// Load on a running etcd through its own client: N proposers, each one put of a new 500-byte value after the other.
// Prints one JSON object: commits a second and latencies in milliseconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
)

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "address of the member to talk to")
	proposers := flag.Int("proposers", 1, "concurrent proposers")
	seconds := flag.Float64("seconds", 3, "how long")
	size := flag.Int("size", 500, "bytes of a value")
	flag.Parse()

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		fail(err)
	}
	defer client.Close()
	value := strings.Repeat("x", *size)
	if _, err := client.Put(context.Background(), "warm", value); err != nil {
		fail(err)
	}
	begun := time.Now()
	until := begun.Add(time.Duration(*seconds * float64(time.Second)))
	took := make([][]float64, *proposers)
	var group sync.WaitGroup
	for p := 0; p < *proposers; p++ {
		group.Add(1)
		go func(p int) {
			defer group.Done()
			for n := 0; time.Now().Before(until); n++ {
				at := time.Now()
				if _, err := client.Put(context.Background(), fmt.Sprintf("bench/%d/%d", p, n), value); err != nil {
					fail(err)
				}
				took[p] = append(took[p], float64(time.Since(at))/1e6)
			}
		}(p)
	}
	group.Wait()
	elapsed := time.Since(begun).Seconds()
	var all []float64
	for _, part := range took {
		all = append(all, part...)
	}
	sort.Float64s(all)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"rate": float64(len(all)) / elapsed,
		"p50":  all[len(all)/2],
		"p99":  all[len(all)*99/100],
	})
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
