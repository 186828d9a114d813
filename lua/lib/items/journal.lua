-- The journal: one record per closed delivery attempt, readable without any other (broker/journal/schema.py).
-- CALL: bounded = false
-- `bounded`: this call has trimmed the journal; its other records are few.
local journal = {AGE_MS = 7 * 24 * 3600 * 1000, NAMED = {publisher = 'by', key = 'key'}}

-- Returns what the node's option `stanzaq#journal` adds to records of an item, by its entry: fields with their values.
function journal.find_named(entry)
  local fields = {}
  for name in string.gmatch(call.partition_before.journal, '%S+') do
    local value = entry[journal.NAMED[name]] or ''
    if value ~= '' then fields[#fields + 1], fields[#fields + 2] = name, value end
  end
  return fields
end

-- Notes that of a locked item while its entry is still there: only nodes with the option read it.
function journal.note_named(flight)
  local entry = log_entries.get(flight.log_id)
  flight.named = entry and journal.find_named(entry)
end

-- The lock's line as it is: parsing it here would cost more than the rest of the call.
function journal.add(kind, flight, reason)
  if flight.named then
    redis.call('XADD', key.journal, 'MAXLEN', '~', call.partition_options.journal_max, '*', 'type', kind, 'closed', call.partition_stamp,
      'lock', flight.line, 'reason', reason, unpack(flight.named))
  elseif call.journal_bounded then
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
