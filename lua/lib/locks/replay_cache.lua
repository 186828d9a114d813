-- Answers of retract and unlock, so that a repeated request gets the answer of the first one (Q27). There are two generations: after a
-- minute or 5,000 answers the younger one replaces the older one, which is dropped.
local replay_cache = {AGE_MS = 60000, COUNT = 5000}

-- Zero bytes separate the parts: no JID and no request id contains one.
local function name(row)
  return row.sender .. '\0' .. row.request .. '\0' .. row.item
end

function replay_cache.rotate()
  local since = tonumber(call.partition_before.answers_since or 0)
  if call.partition_now - since < replay_cache.AGE_MS and redis.call('HLEN', key.replays) < replay_cache.COUNT then return end
  redis.call('UNLINK', key.replays_old)
  if redis.call('EXISTS', key.replays) == 1 then redis.call('RENAME', key.replays, key.replays_old) end
  redis.call('HSET', key.meta, 'answers_since', call.partition_now)
end

-- Asked only when the request does not succeed by itself: replays are rare.
function replay_cache.find(row)
  if not row.request or row.request == '' then return nil end
  local asked = name(row)
  return redis.call('HGET', key.replays, asked) or redis.call('HGET', key.replays_old, asked) or nil
end

function replay_cache.give(row, answer)
  if row.request ~= '' then write_buffer.add('HSET', key.replays, name(row), answer) end
end
