-- The journal: one record per closed delivery attempt that can be read without any other (broker/journal/schema.py).
-- CALL: bounded = false
-- `bounded`: its length has been seen to in this call, whose other records are few.
local journal = {AGE_MS = 7 * 24 * 3600 * 1000}

-- The lock's line as it stood: taken apart here, it would cost more than all else in this call.
function journal.closed(kind, flight, reason)
  if call.journal_bounded then
    redis.call('XADD', key.journal, '*', 'type', kind, 'closed', call.partition_stamp, 'lock', flight.line, 'reason', reason)
  else
    call.journal_bounded = true
    redis.call('XADD', key.journal, 'MAXLEN', '~', call.partition_journal_max, '*', 'type', kind, 'closed', call.partition_stamp,
      'lock', flight.line, 'reason', reason)
  end
end

-- Records older than a week go; their number is bounded by each call's first XADD, so this never runs for long.
function journal.trim()
  redis.call('XTRIM', key.journal, 'MINID', '=', string.format('%d', call.partition_now - journal.AGE_MS))
end
