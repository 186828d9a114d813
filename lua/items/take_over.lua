#!lua flags=allow-oom
-- Take over deliveries that a frontend was to send and has not marked sent: same token, a new sequence, the caller sends
-- them. Readers go back to what they have committed. Scans the in-flight records, then the readers (cursors that begin with
-- r), in bounded parts and answers the cursor for the next call, 0 when done, and the highest sequence in question: what the
-- scan itself renumbers stands above it and is not met twice. So a page that was too much for one script comes again (the first
-- one of the locks as l0, lest it begin a session). One that looks for its own after a lost reply ends the session
-- of that reply first: so nothing that it looks for comes later.
-- ARGV: now revision frontend number lapsed after upto scan
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
if arg.scan == '0' and arg.lapsed == arg.frontend and call.partition_session > 0 then sessions.begin() end
local upto = arg.upto ~= '' and tonumber(arg.upto) or call.partition_token
local after = tonumber(arg.after ~= '' and arg.after or redis.call('HGET', key.send_marks, arg.lapsed) or 0)
local deliveries = delivery_row.list()

local function lock(position, line)
  local flight = inflight.read(position, line)
  local frontend, sequence = inflight.sender(flight.line)
  local theirs = frontend == arg.lapsed and sequence <= upto
  local sent_again = theirs and sequence > after and redelivery.add(deliveries, flight)
  if not sent_again and theirs and arg.lapsed ~= arg.frontend then
    -- Sent, and nobody's to send again: a second rescuer finds nothing even when the mark is gone.
    inflight.hand_to(position, flight.line, inflight.NOBODY, string.format('%d', sequence))
  end
end

local function read(subid, line)
  local reader = log_readers.read(subid, line)
  local sequence = reader.owed[arg.lapsed]
  if not sequence or sequence > upto then return end
  if sequence > after then
    reader_window.rewind(reader)
  elseif arg.lapsed ~= arg.frontend then
    reader.owed[arg.lapsed] = nil
  end
  reader_window.save(reader)
end

local of, cursor = string.match(arg.scan, '^([lr]?)(%d+)$')
local reading, i = of == 'r', 1
local found = redis.call('HSCAN', reading and key.readers or key.inflight, cursor, 'COUNT', 100)
while i < #found[2] and not budget.over() do
  (reading and read or lock)(found[2][i], found[2][i + 1])
  i = i + 2
end
local rest = not reading and call.partition_streams and 'r0' or '0'
if i < #found[2] then
  rest = (reading and 'r' or 'l') .. cursor
elseif found[1] ~= '0' then
  rest = of .. found[1]
end
-- What is too much for one script a visit goes on with, at once.
local more = reading and (budget.over() or log_delivery.run(deliveries) == 1)
if rest == '0' and arg.lapsed ~= arg.frontend then sessions.forget(arg.lapsed) end
partition.save()
return {'ok', {rest, upto}, deliveries, false, false, more and call.partition_now or next_due.time(), 0, call.partition_token}
