#!lua flags=allow-oom
-- Deliveries came back: end their locks at once, count them, and end subscriptions that nothing reaches any more.
-- What a receiver has confirmed does not come back.
-- ARGV: now revision frontend sent number retry max_bounces | sender subids position token gone stage
-- RETURNS: ok stale gone deleted | ok lock-lost
local refusal = partition.load()
if refusal then return refusal end

-- An entry that did not reach its reader comes again with all since its last commit.
local function come_back(reader, gone)
  window.rewind(reader)
  window.settle(reader)
  bounces.count(reader.subid, gone)
end

local results = budget.each(rows, function(row)
  local reader = (row.stage == 'stream' or row.stage == 'gap') and readers.of(row.subids)
  local flight = flights.at({row.position})[1]
  -- Whoever forges an error message gives back at most what it holds itself.
  if reader and window.holds(reader, row.position) then
    come_back(reader, row.gone == '1')
    return {'ok'}
  elseif flight and row.token == flight.token and jids.covers(flight.jid, row.sender)
    and row.stage == unconfirmed.of(row.position) then
    bounces.take(flight, '', row.gone == '1')
    return {'ok'}
  end
  return {'lock-lost'}
end)
local reply = finish.reply(results, call.disown_notices, math.max(call.ending_freed, 1))
if call.leave_more then reply[7] = 1 end
return reply
