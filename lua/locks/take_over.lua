#!lua flags=allow-oom
-- Take over what the `previous` frontend was handed in the last `age_ms`, by the clock here, or else after the sequence `after`: same token,
-- a new sequence; the caller sends it. Readers return to their last commit. Scans the in-flight records, then the readers (cursors that begin with r), in bounded parts. Returns the
-- cursor for the next call, 0 when done, and the highest sequence to look at: what the scan itself renumbers is above it and is not found
-- twice. A page that was too much for one call is scanned again (the first page of locks as l0, so that it does not begin a session). A
-- frontend that looks for its own deliveries after a lost reply first ends the session of that reply, so that nothing it looks for runs
-- later.
-- ARGV: now revision frontend number previous age_ms after upto scan
-- RETURNS: ok(scan upto) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
if arg.scan == '0' and arg.previous == arg.frontend and call.partition_session > 0 then sessions.begin() end
local upto = arg.upto ~= '' and tonumber(arg.upto) or call.partition_token
local after = arg.after ~= '' and tonumber(arg.after) or call.partition_micros - tonumber(arg.age_ms) * 1000
local deliveries = delivery_row.list()

local function lock(position, line)
  local flight = inflight.read(position, line)
  local frontend, sequence = inflight.sender(flight.line)
  if frontend == arg.previous and sequence <= upto and sequence > after then redelivery.add(deliveries, flight) end
end

local function read(subid, line)
  local reader = log_readers.read(subid, line)
  local owed = reader.owed[arg.previous]
  -- What was handed out since the search began, or by it, does not hide what was before.
  if not owed or owed.first > upto or owed.sequence <= after then return end
  reader_window.rewind(reader)
  reader_window.save(reader, reader.position)
end

local of, cursor = string.match(arg.scan, '^([lr]?)(%d+)$')
local reading, i = of == 'r', 1
local found = redis.call('HSCAN', reading and key.readers or key.inflight, cursor, 'COUNT', 100)
while i < #found[2] and not budget.over() do
  (reading and read or lock)(found[2][i], found[2][i + 1])
  i = i + 2
end
local rest = not reading and call.partition_before.streams and 'r0' or '0'
if i < #found[2] then
  rest = (reading and 'r' or 'l') .. cursor
elseif found[1] ~= '0' then
  rest = of .. found[1]
end
-- A sweep continues at once with what is too much for one call.
local more = reading and (budget.over() or log_delivery.run(deliveries) == 1)
if rest == '0' and arg.previous ~= arg.frontend then sessions.forget(arg.previous) end
partition.save()
return respond.results({rest, upto}, more and call.partition_now or next_due.time(), 0, {deliveries = deliveries})
