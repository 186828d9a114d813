-- The journal: one record per closed delivery attempt that can be read without any other (broker/journal/schema.py).
-- NEEDS: journal
--- @include partition
local journal = {AGE_MS = 7 * 24 * 3600 * 1000}

function journal.closed(kind, flight, reason)
  redis.call('XADD', key.journal, 'MAXLEN', '~', partition.journal_max, '*', 'type', kind, 'item', flight.item,
    'published', (string.match(flight.log_id, '^%d+')), 'delivered', flight.since, 'closed', partition.stamp,
    'attempt', flight.attempt, 'subscriber', flight.jid, 'bytes', flight.bytes, 'token', flight.token,
    'reason', reason)
end

-- Records older than a week go; their number is bounded by each XADD, so this never runs for long.
function journal.trim()
  redis.call('XTRIM', key.journal, 'MINID', '=', string.format('%.0f', partition.now - journal.AGE_MS))
end
