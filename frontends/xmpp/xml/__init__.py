"""XML of stanzas: parsing a stream, writing bytes, and data forms. Must not know what a stanza means."""
