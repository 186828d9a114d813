#!lua flags=allow-oom
-- Receivers have confirmed deliveries (urn:xmpp:qos): an assured delivery goes on to `deliver`, which starts the lock's time; any other
-- is complete. Late or repeated confirmations, and those of others, change nothing.
-- ARGV: now revision frontend sent retry | sender position token stage
-- RETURNS: ok stale gone deleted | ok replayed lock-lost
local refusal = partition.load()
if refusal then return refusal end
send_marks.record()
local results, deliveries = {}, {}

local function advance(flight)
  retry_schedule.put(flight.position, 'deliver', 1)
  write_buffer.add('ZADD', key.lock_deadlines, call.partition_deadline_text, flight.position)
  write_buffer.flush()
  redelivery.add(deliveries, flight)
end

local function conclude(flight)
  confirmations.remove(flight.position)
  write_buffer.flush()
  -- It has arrived: nobody sends it again, whatever sent mark its frontend had.
  local _, sequence = inflight.sender(flight.line)
  inflight.hand_to(flight.position, flight.line, '-', string.format('%d', sequence))
  local subscriber = subscriptions.get(flight.subid)
  if subscriber then subscriptions.reached(subscriber) end
end

for i, row in ipairs(rows) do
  local flight = inflight.get_many({row.position})[1]
  if not flight or row.token ~= flight.token or row.sender ~= flight.jid then
    results[i] = {'lock-lost'}
  elseif row.stage == 'unacknowledged' or row.stage ~= confirmations.of(row.position) then
    results[i] = {'replayed'}
  else
    if row.stage == 'assured' then advance(flight) else conclude(flight) end
    results[i] = {'ok'}
  end
end
partition.save()
return {'ok', results, deliveries, false, false, next_due.time(), 0, call.partition_token}
