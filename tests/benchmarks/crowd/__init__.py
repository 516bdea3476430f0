"""A thousand devices with real connections to one broker and one server, in a few processes."""
