"""The Spark data source `stanzaq`: streams of the queue's Redis as rows. Must not know what is measured."""
