module sotto/deploy/ohttp/gateway

go 1.24.0

require (
	github.com/chris-wood/ohttp-go v0.0.0-20230523152405-45fb0d05eb13
	github.com/cloudflare/circl v1.6.1
)

require (
	golang.org/x/crypto v0.45.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
)
