-- The journal: one record per closed delivery attempt that can be read without any other (broker/journal/schema.py).
local journal = {AGE_MS = 7 * 24 * 3600 * 1000}

function journal.closed(kind, flight, reason)
  -- The lock's line as it stood: taken apart here, it would cost more than all else in this call.
  redis.call('XADD', key.journal, 'MAXLEN', '~', call.partition_journal_max, '*', 'type', kind, 'closed', call.partition_stamp,
    'lock', flight.line, 'reason', reason)
end

-- Records older than a week go; their number is bounded by each XADD, so this never runs for long.
function journal.trim()
  redis.call('XTRIM', key.journal, 'MINID', '=', string.format('%d', call.partition_now - journal.AGE_MS))
end
