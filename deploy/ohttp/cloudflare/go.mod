module sotto/deploy/ohttp/cloudflare

go 1.24.0

tool github.com/cloudflare/app-gateway-go

require (
	github.com/DataDog/datadog-go/v5 v5.1.1 // indirect
	github.com/Microsoft/go-winio v0.5.0 // indirect
	github.com/chris-wood/ohttp-go v0.0.0-20230523152405-45fb0d05eb13 // indirect
	github.com/cloudflare/app-gateway-go v0.0.2 // indirect
	github.com/cloudflare/circl v1.3.7 // indirect
	golang.org/x/crypto v0.17.0 // indirect
	golang.org/x/sys v0.15.0 // indirect
	google.golang.org/protobuf v1.28.1 // indirect
)

replace github.com/cloudflare/app-gateway-go => github.com/cloudflare/privacy-gateway-server-go v0.0.2
