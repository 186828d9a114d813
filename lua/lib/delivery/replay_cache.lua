-- Answers given to retract and unlock, so that a replay of the same request is answered as the first was (Q27). Two
-- generations: the younger becomes the older after a minute or 5,000 answers, and the older one goes.
local replay_cache = {AGE_MS = 60000, COUNT = 5000}

-- Zero bytes keep the parts apart: no JID and no request id can hold one.
local function name(row)
  return row.sender .. '\0' .. row.request .. '\0' .. row.item
end

function replay_cache.rotate()
  local since = tonumber(redis.call('HGET', key.meta, 'answers_since') or 0)
  if call.partition_now - since < replay_cache.AGE_MS and redis.call('HLEN', key.answers) < replay_cache.COUNT then return end
  redis.call('UNLINK', key.answers_old)
  if redis.call('EXISTS', key.answers) == 1 then redis.call('RENAME', key.answers, key.answers_old) end
  redis.call('HSET', key.meta, 'answers_since', call.partition_now)
end

-- Asked for only where the request does not hold by itself: a replay is rare.
function replay_cache.given(row)
  if not row.request or row.request == '' then return nil end
  local asked = name(row)
  return redis.call('HGET', key.answers, asked) or redis.call('HGET', key.answers_old, asked) or nil
end

function replay_cache.give(row, answer)
  if row.request ~= '' then write_buffer.add('HSET', key.answers, name(row), answer) end
end
