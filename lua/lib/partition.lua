-- The partition's clock, options and counters: read once when an operation starts; the counters are written once when it ends.
-- CALL: kept = nil, kept_bytes = nil, removed = nil, trim = nil, lost = nil, session = nil, micros = nil, now = nil, stamp = nil, deadline = nil, deadline_text = nil, cursor = nil, tail = nil, token = nil, fence = nil, before = nil, options = nil
local partition = {}

-- HGETALL: few of the fields exist, so HMGET would look for most in vain.
local function read_meta()
  local found, meta = redis.call('HGETALL', key.meta), {}
  for i = 1, #found, 2 do meta[found[i]] = found[i + 1] end
  return meta
end

-- A frontend that has lost replies calls itself `NAME/SESSION`; 0 before that. Everything else uses `NAME`.
local function session()
  local slash = string.find(arg.frontend or '', '/', 1, true)
  if not slash then return 0 end
  local number = tonumber(string.sub(arg.frontend, slash + 1))
  arg.frontend = string.sub(arg.frontend, 1, slash - 1)
  return number
end

-- Returns nil when the operation may go on, else the reply to return: `gone` (never opened), `deleted`, or `stale` when the caller has
-- another revision. A call of a session that its caller has ended is stale too: the caller has already looked for what
-- such lost calls changed, so nothing may run late.
function partition.load()
  call.partition_session = session()
  local meta = read_meta()
  if meta.state == 'deleted' then return {'deleted'} end
  if not meta.revision then return {'gone'} end
  if arg.revision ~= '' and arg.revision ~= meta.revision then return {'stale'} end
  local since = meta['session/' .. (arg.frontend or '')]
  if since and call.partition_session < tonumber(since) then return {'stale'} end
  call.partition_micros = clock.micros()
  call.partition_now = math.floor(call.partition_micros / 1000)
  call.partition_stamp = string.format('%d', call.partition_now)
  call.partition_options = options.read(meta)
  call.partition_deadline = call.partition_now + call.partition_options.lock_ms
  call.partition_deadline_text = string.format('%d', call.partition_deadline)
  call.partition_cursor, call.partition_tail = meta.cursor, meta.tail
  call.partition_token = tonumber(meta.token)
  call.partition_fence = tonumber(meta.fence or 0)
  call.partition_before = meta
  -- The log as a stream: how much is kept, up to where it was trimmed, and the last entry removed.
  call.partition_kept, call.partition_kept_bytes = tonumber(meta.kept or 0), tonumber(meta.kept_bytes or 0)
  call.partition_removed = tonumber(meta.removed or 0)
  call.partition_trim, call.partition_lost = meta.trim or '0-0', meta.lost or '0-0'
  return nil
end

-- Stores a value of the partition's own in `meta`.
function partition.put(field, value)
  redis.call('HSET', key.meta, field, value)
  call.partition_before[field] = value
end

function partition.drop(field)
  redis.call('HDEL', key.meta, field)
  call.partition_before[field] = nil
end

-- Turns on a feature of the partition, such as `confirms` once a delivery is to be confirmed, or `hinted` once an item has a delay, a
-- priority or an expiry. Operations skip the features that `before` does not have.
function partition.turn_on(feature)
  if not call.partition_before[feature] then partition.put(feature, '1') end
end

-- Moves the cursor: items up to there have been handed out, or are elsewhere.
function partition.move_cursor(position)
  call.partition_cursor = position
end

-- Notes the last entry of the log.
function partition.move_tail(log_id)
  call.partition_tail = log_id
end

-- Notes up to where the log was trimmed.
function partition.move_trim(log_id)
  call.partition_trim = log_id
end

-- Notes the last entry that was removed.
function partition.note_lost(log_id)
  call.partition_lost = log_id
end

-- Counts kept entries, and their bytes.
function partition.count_kept(count, bytes)
  call.partition_kept, call.partition_kept_bytes = call.partition_kept + count, call.partition_kept_bytes + bytes
end

-- Counts entries of a queue that went without being acknowledged.
function partition.count_removed(count)
  call.partition_removed = call.partition_removed + count
end

-- Returns the next number of the partition, for a token, sequence, fence or version. No number is given twice, also when Redis has lost
-- its last second (guarantee 10). A counter alone would go back with the data and give the lost numbers again. So the number is Redis's
-- time in microseconds, or one more than the last number if that is larger. A call needs more than a microsecond for each number, so
-- numbers are never ahead of the clock by more than those of one call. The time is below 2^53, and so exact in Lua, until the year
-- 2255.
function partition.next_number()
  call.partition_token = math.max(call.partition_token + 1, call.partition_micros)
  return call.partition_token
end

-- Raises the numbers and the positions to a time in ms: none that was given before it is given again, also if this clock is behind.
function partition.raise(ms)
  call.partition_micros = math.max(call.partition_micros, ms * 1000)
  partition.next_number()
  local tail_ms = positions.split(call.partition_tail)
  if ms > tail_ms then partition.move_tail(string.format('%d-0', ms)) end
end

function partition.save()
  local before = call.partition_before
  if call.partition_cursor ~= before.cursor or call.partition_tail ~= before.tail or call.partition_token ~= tonumber(before.token) then
    redis.call('HSET', key.meta, 'cursor', call.partition_cursor, 'tail', call.partition_tail, 'token', call.partition_token)
  end
  if call.partition_kept ~= tonumber(before.kept or 0) or call.partition_kept_bytes ~= tonumber(before.kept_bytes or 0)
    or call.partition_trim ~= (before.trim or '0-0') or call.partition_lost ~= (before.lost or '0-0') then
    redis.call('HSET', key.meta, 'kept', string.format('%d', call.partition_kept),
      'kept_bytes', string.format('%d', call.partition_kept_bytes), 'trim', call.partition_trim, 'lost', call.partition_lost)
  end
  if call.partition_removed ~= tonumber(before.removed or 0) then
    redis.call('HSET', key.meta, 'removed', string.format('%d', call.partition_removed))
  end
end
