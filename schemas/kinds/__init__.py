"""The kinds of message, by what they are about; `schemas.messages` has them all."""
