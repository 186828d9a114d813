-- The journal: one record per closed delivery attempt that can be read without any other (broker/journal/schema.py).
-- NEEDS: journal
--- @include partition
local journal = {}

function journal.closed(kind, flight, reason)
  redis.call('XADD', key.journal, 'MAXLEN', '~', partition.journal_max, '*', 'type', kind, 'item', flight.item,
    'published', (string.match(flight.log_id, '^%d+')), 'delivered', flight.since, 'closed', partition.stamp,
    'attempt', flight.attempt, 'subscriber', flight.jid, 'bytes', flight.bytes, 'token', flight.token,
    'reason', reason)
end
