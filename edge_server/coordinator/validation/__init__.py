"""The update firewall, on by default: `README.md` has its checks, in their order."""
