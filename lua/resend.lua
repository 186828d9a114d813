#!lua flags=allow-oom
-- Take over deliveries that a frontend was to send and has not marked sent: same token, a new sequence, the caller sends
-- them. Scans the in-flight records in bounded parts and answers the cursor for the next call, 0 when done, and the highest
-- sequence in question: what the scan itself renumbers stands above it and is not met twice.
-- KEYS: meta log replaced inflight deadlines delayed handover sent unconfirmed retries
-- ARGV: now revision frontend number lapsed after upto scan
-- RETURNS: ok stale gone deleted
-- WRITES: meta inflight sent
--- @include partition flights again due
local refusal = partition.load()
if refusal then return refusal end
local upto = arg.upto ~= '' and tonumber(arg.upto) or partition.token
local after = tonumber(arg.after ~= '' and arg.after or redis.call('HGET', key.sent, arg.lapsed) or 0)
local found, deliveries = redis.call('HSCAN', key.inflight, arg.scan, 'COUNT', 100), {}
for i = 1, #found[2], 2 do
  local position = found[2][i]
  local flight = flights.read(position, found[2][i + 1])
  local frontend, sequence = flights.sender(flight.line)
  local theirs = frontend == arg.lapsed and sequence <= upto
  local row = theirs and sequence > after and again.row(flight)
  if row then
    deliveries[#deliveries + 1] = row
  elseif theirs and arg.lapsed ~= arg.frontend then
    -- Sent, and nobody's to send again: a second rescuer finds nothing even when the mark is gone.
    flights.entrust(position, flight.line, '-', string.format('%d', sequence))
  end
end
if found[1] == '0' and arg.lapsed ~= arg.frontend then redis.call('HDEL', key.sent, arg.lapsed) end
partition.save()
return {'ok', {found[1], upto}, deliveries, {}, {}, due.next(), 0, partition.token}
