// A gateway of Oblivious HTTP (RFC 9458) for one collector.
//
// It decrypts requests that come through a relay, forwards the messages in them, and requests for
// plans, to the collector, and encrypts the answers. It logs nothing about requests, keeps nothing,
// forwards to nobody else, and passes on two header fields of messages alone: the type of the
// content and the app's key.
package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chris-wood/ohttp-go"
	"github.com/cloudflare/circl/hpke"
)

const (
	// Bytes of a request, of the collector's answer, and of the plans that it serves, at most.
	mostRequest = 4 << 20
	mostAnswer  = 64 << 10
	mostPlans   = 4 << 20
	// Bytes of all requests that are not answered yet, room for the plans that they ask for
	// included, and seconds after which to come again.
	mostHeld = 64 << 20
	busy     = "5"
	// What a request begins with: key identifier, KEM, KDF, AEAD, and the encapsulated secret.
	headBytes = 7 + 32
	// Answers are padded to a multiple of this, a power of two.
	answerStep = 512
	reports    = "/v1/reports"
	seedBytes  = 32

	keyProblem = `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key",` +
		`"title":"key identifier unknown"}` + "\n"
)

type gateway struct {
	keys      []ohttp.PrivateConfig
	origin    string
	collector *url.URL
	client    *http.Client
	held      atomic.Int64
}

// plansOf is what a device may ask for: the plans of a collector.
var plansOf = regexp.MustCompile(`^/v1/plans/[A-Za-z0-9][A-Za-z0-9_.\-]*$`)

var errFull = errors.New("too many bytes wait")

// holding counts what it has read among what all requests hold.
type holding struct {
	io.Reader
	all  *atomic.Int64
	mine int64
}

func (h *holding) Read(part []byte) (int, error) {
	size, err := h.Reader.Read(part)
	h.mine += int64(size)
	if h.all.Add(int64(size)) > mostHeld {
		return size, errFull
	}
	return size, err
}

func (h *holding) release() {
	h.all.Add(-h.mine)
}

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:8471", "where to listen")
	keyFile := flag.String("keys", "", "file of keys, one a line: identifier (0 to 255) and seed (64 hexadecimal digits), the newest first")
	origin := flag.String("origin", "", "host name by which apps name the collector; nothing else is forwarded")
	collector := flag.String("collector", "http://127.0.0.1:8470", "where the collector is reached")
	flag.Parse()
	if *keyFile == "" || *origin == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	keys, err := readKeys(*keyFile)
	if err != nil {
		log.Fatalf("gateway: error: %v", err)
	}
	target, err := url.Parse(*collector)
	if err != nil || target.Host == "" {
		log.Fatal("gateway: error: -collector must be such as http://127.0.0.1:8470")
	}
	if strings.Contains(*origin, "/") {
		log.Fatal("gateway: error: -origin must be a host's name alone, such as telemetry.example")
	}
	serving := &gateway{keys: keys, origin: *origin, collector: target, client: newClient()}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /gateway", serving.forward)
	routes.HandleFunc("GET /ohttp-keys", serving.serveKeys)
	server := &http.Server{
		Addr:              *listen,
		Handler:           routes,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		// Longer than a proxy before it keeps an idle connection: two minutes.
		IdleTimeout: 180 * time.Second,
		// What it would log names the addresses of connections.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	log.Fatalf("gateway: error: %v", server.ListenAndServe())
}

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.DisableCompression = true
	transport.MaxIdleConnsPerHost = 64
	// Shorter than the collector keeps an idle connection: 15 seconds.
	transport.IdleConnTimeout = 10 * time.Second
	return &http.Client{
		Transport: transport,
		Timeout:   30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

func readKeys(path string) ([]ohttp.PrivateConfig, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys []ohttp.PrivateConfig
	known := map[uint64]bool{}
	for number, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		key, err := readKey(line, known)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func readKey(line string, known map[uint64]bool) (ohttp.PrivateConfig, error) {
	parts := strings.Fields(line)
	if len(parts) != 2 {
		return ohttp.PrivateConfig{}, errors.New("a key is an identifier and a seed")
	}
	id, err := strconv.ParseUint(parts[0], 10, 8)
	if err != nil || known[id] {
		return ohttp.PrivateConfig{}, errors.New("an identifier is a number from 0 to 255 that no other key has")
	}
	known[id] = true
	seed, err := hex.DecodeString(parts[1])
	if err != nil || len(seed) != seedBytes {
		return ohttp.PrivateConfig{}, fmt.Errorf("a seed has %d hexadecimal digits", 2*seedBytes)
	}
	return ohttp.NewConfigFromSeed(uint8(id), hpke.KEM_X25519_HKDF_SHA256, hpke.KDF_HKDF_SHA256, hpke.AEAD_AES128GCM, seed)
}

func (g *gateway) serveKeys(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/ohttp-keys")
	w.Write(ohttp.NewDefaultGateway(g.keys).MarshalConfigs())
}

// forward answers with an error in the clear only where the request cannot be decrypted.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != "message/ohttp-req" {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	body := &holding{Reader: http.MaxBytesReader(w, r.Body, mostRequest), all: &g.held}
	defer body.release()
	encapsulated, err := io.ReadAll(body)
	if errors.Is(err, errFull) {
		w.Header().Set("Retry-After", busy)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		w.WriteHeader(status)
		return
	}
	inner, answering, err := g.decapsulate(encapsulated)
	if err != nil {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, keyProblem)
		return
	}
	answer, err := answering.EncapsulateResponse(g.ask(r, inner))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "message/ohttp-res")
	w.Write(answer.Marshal())
}

func (g *gateway) decapsulate(encapsulated []byte) ([]byte, ohttp.DecapsulateRequestContext, error) {
	var none ohttp.DecapsulateRequestContext
	// The library does not check these two.
	if len(encapsulated) < headBytes || !bytes.Equal(encapsulated[1:3], []byte{0x00, 0x20}) {
		return nil, none, errors.New("not a request for these keys")
	}
	request, err := ohttp.UnmarshalEncapsulatedRequest(encapsulated)
	if err != nil {
		return nil, none, err
	}
	// One for each request: those that share one write to the same bytes.
	return ohttp.NewDefaultGateway(g.keys).DecapsulateRequest(request)
}

// ask returns the collector's answer, as binary HTTP.
func (g *gateway) ask(outer *http.Request, inner []byte) []byte {
	if !wellFormed(inner) {
		return answerOf(http.StatusBadRequest, nil, nil)
	}
	asked, err := ohttp.UnmarshalBinaryRequest(inner)
	if err != nil || (asked.Method != http.MethodPost && asked.Method != http.MethodGet) {
		return answerOf(http.StatusBadRequest, nil, nil)
	}
	most, names := int64(mostAnswer), []string{"Content-Type", "Authorization"}
	allowed := asked.URL.EscapedPath() == reports
	if asked.Method == http.MethodGet {
		// Nothing but the collector's name goes on, so that all who ask for plans look alike.
		most, names = mostPlans, nil
		allowed = plansOf.MatchString(asked.URL.EscapedPath())
	}
	if asked.Host != g.origin || !allowed || asked.URL.RawQuery != "" {
		return answerOf(http.StatusForbidden, nil, nil)
	}
	if asked.Method == http.MethodGet {
		defer g.held.Add(-mostPlans)
		if g.held.Add(mostPlans) > mostHeld {
			return answerOf(http.StatusServiceUnavailable, http.Header{"Retry-After": {busy}}, nil)
		}
	}
	request, err := http.NewRequestWithContext(outer.Context(), asked.Method, g.collector.JoinPath(asked.URL.EscapedPath()).String(), asked.Body)
	if err != nil {
		return answerOf(http.StatusBadRequest, nil, nil)
	}
	request.ContentLength = asked.ContentLength
	request.Host = g.origin
	request.Header.Set("User-Agent", "")
	copyFields(request.Header, asked.Header, names...)
	response, err := g.client.Do(request)
	if err != nil {
		return answerOf(http.StatusBadGateway, nil, nil)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return answerOf(http.StatusBadGateway, nil, nil)
	}
	fields := http.Header{}
	copyFields(fields, response.Header, "Content-Type", "Retry-After")
	return answerOf(response.StatusCode, fields, body)
}

func copyFields(to, from http.Header, names ...string) {
	for _, name := range names {
		if value := from.Get(name); value != "" {
			to.Set(name, value)
		}
	}
}

func answerOf(status int, fields http.Header, body []byte) []byte {
	response := ohttp.CreateBinaryResponse(&http.Response{
		StatusCode: status,
		Header:     fields,
		Body:       io.NopCloser(bytes.NewReader(body)),
	})
	encoded, err := response.Marshal()
	if err != nil {
		return answerOf(http.StatusBadGateway, nil, nil)
	}
	// Zeros at the end are padding: a relay does not learn from the length what was answered.
	return append(encoded, make([]byte, -len(encoded)&(answerStep-1))...)
}

// wellFormed reports whether no part of a request of known length claims to be longer than what
// there is (the library would reserve memory for it), and there are no trailers.
func wellFormed(request []byte) bool {
	rest := bytes.NewBuffer(request)
	if framing, err := ohttp.Read(rest); err != nil || framing != 0 {
		return false
	}
	for range []string{"method", "scheme", "authority", "path"} {
		if _, fits := next(rest); !fits {
			return false
		}
	}
	fields, fits := next(rest)
	if !fits || !pairsFit(fields) {
		return false
	}
	if _, fits = next(rest); !fits {
		return false
	}
	trailers, fits := next(rest)
	return fits && len(trailers) == 0
}

func pairsFit(section []byte) bool {
	rest := bytes.NewBuffer(section)
	for rest.Len() > 0 {
		if _, fits := next(rest); !fits {
			return false
		}
	}
	return true
}

func next(rest *bytes.Buffer) ([]byte, bool) {
	length, err := ohttp.Read(rest)
	if err != nil || length > uint64(rest.Len()) {
		return nil, false
	}
	return rest.Next(int(length)), true
}
