#!lua flags=allow-oom
-- Deliveries bounced: end their locks at once, count the failures, and end subscriptions that can no longer be reached. A delivery that
-- its receiver has confirmed does not bounce.
-- ARGV: now revision frontend sent number retry max_bounces | sender subids position token gone stage
-- RETURNS: ok stale gone deleted | ok lock-lost
local refusal = partition.load()
if refusal then return refusal end

-- An entry that did not reach its reader is sent again, with all since its last commit.
local function come_back(reader, gone)
  reader_window.rewind(reader)
  reader_window.save(reader)
  delivery_failures.count(reader.subid, gone)
end

local results = budget.each(rows, function(row)
  local reader = (row.stage == 'stream' or row.stage == 'gap') and log_readers.by_sender(row.subids)
  local flight = inflight.get_many({row.position})[1]
  -- A sender that forges an error message gives back at most its own locks.
  if reader and reader_window.is_outstanding(reader, row.position) then
    come_back(reader, row.gone == '1')
    return {'ok'}
  elseif flight and row.token == flight.token and jids.covers(flight.jid, row.sender)
    and row.stage == confirmations.of(row.position) then
    delivery_failures.end_lock(flight, '', row.gone == '1')
    return {'ok'}
  end
  return {'lock-lost'}
end)
local reply = respond.make(results, call.ownership_loss_notices, math.max(call.lock_end_freed, 1))
if call.unsubscribing_more then reply[7] = 1 end
return reply
