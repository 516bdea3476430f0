"""The networks that come with this project, one per file; a user's own is named `package.module:factory`."""
