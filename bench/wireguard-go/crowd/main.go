// Crowd is many WireGuard clients in one process, for measuring what idle clients cost a gateway.
//
//	crowd keys N                      prints N lines: private key, public key (hex)
//	crowd clients KEY HOST:PORT       reads private keys from standard input, one a line, and runs
//	                                  a client for each against the gateway with that public key
//
// Each client is wireguard-go's own device, with a TUN that nobody reads. When every client has
// shaken hands it prints "ready" and stays until it is ended.
package main

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

// The longest that all handshakes together may take.
const patience = 60 * time.Second

// Clients started per second: a crowd that comes all at once would meet WireGuard's own limit on
// handshakes, which is not what is measured.
const startsPerSecond = 200

func main() {
	log.SetFlags(0)
	log.SetPrefix("crowd: ")
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "keys":
		count, err := strconv.Atoi(args[1])
		if err != nil || count < 1 {
			log.Fatalf("%q is no number of keys", args[1])
		}
		printKeys(count)
	case len(args) == 3 && args[0] == "clients":
		runClients(args[1], args[2])
	default:
		log.Fatal("usage: crowd keys N | crowd clients KEY HOST:PORT")
	}
}

func printKeys(count int) {
	for range count {
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(hex.EncodeToString(private.Bytes()), hex.EncodeToString(private.PublicKey().Bytes()))
	}
}

func runClients(gateway, endpoint string) {
	var clients []*device.Device
	keys := bufio.NewScanner(os.Stdin)
	for keys.Scan() {
		clients = append(clients, start(keys.Text(), gateway, endpoint))
		time.Sleep(time.Second / startsPerSecond)
	}
	deadline := time.Now().Add(patience)
	for _, client := range clients {
		for !shaken(client) {
			if time.Now().After(deadline) {
				log.Fatalf("not every client has shaken hands within %s", patience)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	fmt.Println("ready")
	select {}
}

func start(private, gateway, endpoint string) *device.Device {
	client := device.NewDevice(
		tuntest.NewChannelTUN().TUN(),
		conn.NewDefaultBind(),
		device.NewLogger(device.LogLevelError, "crowd: "),
	)
	// A keepalive makes the client speak first; 25 s is what a client behind NAT uses.
	config := fmt.Sprintf(
		"private_key=%s\npublic_key=%s\nendpoint=%s\npersistent_keepalive_interval=25\nallowed_ip=0.0.0.0/0\n",
		private, gateway, endpoint,
	)
	if err := client.IpcSet(config); err != nil {
		log.Fatal(err)
	}
	if err := client.Up(); err != nil {
		log.Fatal(err)
	}
	return client
}

func shaken(client *device.Device) bool {
	state, err := client.IpcGet()
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(state) {
		if value, found := strings.CutPrefix(line, "last_handshake_time_sec="); found {
			return strings.TrimSpace(value) != "0"
		}
	}
	return false
}
