#!lua flags=allow-oom
-- Receivers have confirmed deliveries (urn:xmpp:qos): an assured delivery goes on to `deliver`, which starts the lock's time; any other
-- is complete. Late or repeated confirmations, and those of others, change nothing. One that names several locks confirms those that it
-- can. An assured message of several items counts only as a whole: a later message may have brought some of them, and no item is started
-- by two messages.
-- ARGV: now revision frontend retry | sender position token stage others message
-- RETURNS: ok stale gone deleted | ok replayed lock-lost
local refusal = partition.load()
if refusal then return refusal end
local deliveries = {}

local function advance(flight, message)
  retry_schedule.put(flight.position, 'deliver', 1, message)
  write_buffer.add('ZADD', key.lock_deadlines, call.partition_deadline_text, flight.position)
  write_buffer.flush()
  redelivery.add(deliveries, flight)
end

local function conclude(flight)
  confirmations.remove(flight.position)
  write_buffer.flush()
  -- It has arrived: nobody sends it again, whenever its frontend dies.
  local _, sequence = inflight.sender(flight.line)
  inflight.hand_to(flight.position, flight.line, inflight.NOBODY, string.format('%d', sequence))
  local subscriber = subscriptions.get(flight.subid)
  if subscriber then subscriptions.reset_bounces(subscriber) end
end

local results = budget.each(rows, function(row)
  local held, count = inflight.find(row, function(flight)
    return row.sender == flight.jid and not references.has_ended(flight)
  end)
  local waiting = {}
  for _, flight in ipairs(held) do
    if row.stage ~= 'unacknowledged' and row.stage == confirmations.of(flight.position) then waiting[#waiting + 1] = flight end
  end
  if #held == 0 then return {'lock-lost'} end
  if #waiting == 0 or row.stage == 'assured' and #waiting < count then return {'replayed'} end
  for _, flight in ipairs(waiting) do
    if row.stage == 'assured' then advance(flight, row.message) else conclude(flight) end
  end
  return {'ok'}
end)
partition.save()
return respond.results(results, next_due.time(), 0, {deliveries = deliveries})
