"""The gateway of Oblivious HTTP: built with Go, and started on this machine."""
