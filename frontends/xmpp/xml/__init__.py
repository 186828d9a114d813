"""XML of stanzas: read from a stream, written as bytes, and data forms. Must not know what any stanza means."""
