#!lua flags=allow-oom
-- Deliveries bounced: end their locks at once, count the failures, and end subscriptions that can no longer be reached. A delivery that
-- its receiver has confirmed does not bounce. One of several items counts as one.
-- ARGV: now revision frontend number retry | sender subids position token gone stage others
-- RETURNS: ok stale gone deleted | ok lock-lost
local refusal = partition.load()
if refusal then return refusal end

-- An entry that did not reach its reader is sent again, with all since its last commit.
local function come_back(reader, gone)
  reader_window.rewind(reader)
  reader_window.save(reader, reader.position)
  delivery_failures.count(reader.subid, gone)
end

local results = budget.each(rows, function(row)
  local reader = (row.stage == 'stream' or row.stage == 'gap') and log_readers.by_sender(row.subids)
  if reader and reader_window.is_outstanding(reader, row.position) then
    come_back(reader, row.gone == '1')
    return {'ok'}
  end
  -- A sender that forges an error message gives back at most its own locks.
  local held = inflight.find(row, function(flight)
    return jids.covers(flight.jid, row.sender) and row.stage == confirmations.of(flight.position)
  end)
  if #held == 0 then return {'lock-lost'} end
  delivery_failures.end_locks(held, '', row.gone == '1')
  return {'ok'}
end)
local reply = respond.make(results, math.max(call.lock_end_freed, 1))
if call.unsubscribing_more then reply[respond.MORE] = 1 end
return reply
