"""What a device trusts and how it proves who it is."""
