-- The journal: one record per closed delivery attempt, readable without any other (broker/journal/schema.py).
-- CALL: bounded = false
-- `bounded`: this call has trimmed the journal; its other records are few.
local journal = {AGE_MS = 7 * 24 * 3600 * 1000}

-- The lock's line as it is: parsing it here would cost more than the rest of the call.
function journal.add(kind, flight, reason)
  if call.journal_bounded then
    redis.call('XADD', key.journal, '*', 'type', kind, 'closed', call.partition_stamp, 'lock', flight.line, 'reason', reason)
  else
    call.journal_bounded = true
    redis.call('XADD', key.journal, 'MAXLEN', '~', call.partition_options.journal_max, '*', 'type', kind, 'closed', call.partition_stamp,
      'lock', flight.line, 'reason', reason)
  end
end

-- Removes records older than a week; each call's first XADD bounds their number, so this never runs for long.
function journal.trim()
  redis.call('XTRIM', key.journal, 'MINID', '=', string.format('%d', call.partition_now - journal.AGE_MS))
end
