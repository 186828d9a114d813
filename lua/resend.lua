#!lua flags=allow-oom
-- Take over deliveries that a frontend was to send and has not marked sent: same token, a new sequence, the caller sends
-- them. Readers go back to what they have committed. Scans the in-flight records, then the readers (cursors that begin with
-- r), in bounded parts and answers the cursor for the next call, 0 when done, and the highest sequence in question: what the
-- scan itself renumbers stands above it and is not met twice. One that looks for its own after a lost reply ends the session
-- of that reply first: so nothing that it looks for comes later.
-- KEYS: meta log replaced delayed inflight deadlines subscribers tried sent unconfirmed retries readers reading outstanding ends
-- ARGV: now revision frontend number lapsed after upto scan
-- RETURNS: ok stale gone deleted
-- WRITES: meta inflight sent readers reading outstanding
--- @include partition sessions flights again window stream due
local refusal = partition.load()
if refusal then return refusal end
if arg.scan == '0' and arg.lapsed == arg.frontend and partition.session > 0 then sessions.begin() end
local upto = arg.upto ~= '' and tonumber(arg.upto) or partition.token
local after = tonumber(arg.after ~= '' and arg.after or redis.call('HGET', key.sent, arg.lapsed) or 0)
local deliveries = {}

local function lock(position, line)
  local flight = flights.read(position, line)
  local frontend, sequence = flights.sender(flight.line)
  local theirs = frontend == arg.lapsed and sequence <= upto
  local row = theirs and sequence > after and again.row(flight)
  if row then
    deliveries[#deliveries + 1] = row
  elseif theirs and arg.lapsed ~= arg.frontend then
    -- Sent, and nobody's to send again: a second rescuer finds nothing even when the mark is gone.
    flights.entrust(position, flight.line, flights.NOBODY, string.format('%d', sequence))
  end
end

local function read(subid, line)
  local reader = readers.read(subid, line)
  local sequence = reader.owed[arg.lapsed]
  if not sequence or sequence > upto then return end
  if sequence > after then
    window.rewind(reader)
  elseif arg.lapsed ~= arg.frontend then
    reader.owed[arg.lapsed] = nil
  end
  window.settle(reader)
end

local reading, cursor = string.match(arg.scan, '^(r?)(%d+)$')
local found = redis.call('HSCAN', reading == 'r' and key.readers or key.inflight, cursor, 'COUNT', 100)
local each = reading == 'r' and read or lock
for i = 1, #found[2], 2 do each(found[2][i], found[2][i + 1]) end
local rest = found[1] ~= '0' and reading .. found[1] or (reading == '' and partition.streams and 'r0') or '0'
-- What is too much for one script a visit goes on with, at once.
local more = reading == 'r' and stream.run(deliveries) == 1
if rest == '0' and arg.lapsed ~= arg.frontend then sessions.forget(arg.lapsed) end
partition.save()
return {'ok', {rest, upto}, deliveries, {}, {}, more and partition.now or due.next(), 0, partition.token}
