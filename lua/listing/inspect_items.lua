#!lua flags=no-writes
-- List items with everything known of each, last who waits for it, and the record of one that waits for others: those named by rows, or at most `limit` entries
-- of the log between two positions, with about `max_bytes` of payload. Also returns the last position, empty at the end.
-- ARGV: now revision number past till limit max_bytes | item
-- RETURNS: ok(last items(position item state publisher key published_ms body attempts until_ms
--   lock{jid token since_ms deadline_ms frontend progress} holders priority ends_ms history awaited_by [parents])) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local limit, bytes, found, come = tonumber(arg.limit), 0, {}, arg.past

local function lock(flight)
  local frontend = inflight.sender(flight.line)
  local since = string.match(flight.line, '^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) ')
  return {flight.jid, tonumber(flight.token), tonumber(since),
    tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0), frontend, progress.of(flight.position)}
end

-- A locked item, or one on its way to another node, is not among those that wait.
local function state(position, flight)
  if flight then return log_entries.get(flight.log_id), 'locked', 0 end
  if redis.call('HEXISTS', key.outbox_items, position) == 1 then return log_entries.current(position), 'dying', 0 end
  if call.partition_options.log_only then return log_entries.get(position), 'kept', 0 end
  if dependents.text(position) then return items.waiting(position), 'dependent', 0 end
  local delayed = tonumber(redis.call('ZSCORE', key.delayed, position) or 0)
  return items.waiting(position), delayed > 0 and 'delayed' or 'waiting', delayed
end

-- The JIDs of earlier holders that are still subscribed.
local function holders(past)
  local jids = {}
  for _, subid in ipairs(past.holders) do
    local subscriber = subscriptions.get(subid)
    jids[#jids + 1] = subscriber and subscriber.jid or nil
  end
  return jids
end

-- Adds what is known of an item; with `wanted` only if that is its name.
local function add_item(position, wanted)
  local flight = inflight.get_many({position})[1]
  local entry, how, until_ms = state(position, flight)
  local name = entry and (flight and flight.item or items.name(position, entry))
  if not entry or (wanted and name ~= wanted) then return end
  local past, asks = attempt_history.of(position), scheduling.of(entry)
  bytes = bytes + #entry.body
  found[#found + 1] = {position, name, how, entry.by, entry.key, tonumber((positions.split(entry.log_id))), entry.body,
    (flight and tonumber(flight.attempt) or past.attempts) - past.untried, until_ms, flight and lock(flight) or {}, holders(past),
    scheduling.LAST - (asks.rank or scheduling.USUAL), asks.ends, attempt_history.lines(position), awaited.some(position),
    dependents.text(position)}
end

if #rows > 0 then
  local ids = {}
  for i, row in ipairs(rows) do ids[i] = row.item end
  for i, position in ipairs(items.positions_of(ids)) do
    if position then add_item(position, ids[i]) end
  end
  return respond.results({'', found})
end
for _ = 1, limit do
  if bytes >= tonumber(arg.max_bytes) then break end
  -- One by one: entries beyond `max_bytes` would be read in vain.
  local raw = redis.call('XRANGE', key.log, '(' .. come, arg.till, 'COUNT', 1)[1]
  come = raw and raw[1] or ''
  if not raw then break end
  add_item(come)
end
return respond.results({come, found})
