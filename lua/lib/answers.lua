-- Answers given to retract and unlock, so that a replay of the same request is answered as the first was (Q27). Two
-- generations: the younger becomes the older after a minute or 5,000 answers, and the older one goes.
-- NEEDS: answers answers_old meta
--- @include partition writes
local answers = {AGE_MS = 60000, COUNT = 5000}

function answers.name(sender, request, item)
  -- Lengths first: all three may hold any character.
  return #sender .. ':' .. #request .. ':' .. sender .. ' ' .. request .. ' ' .. item
end

function answers.rotate()
  local since = tonumber(redis.call('HGET', key.meta, 'answers_since') or 0)
  if partition.now - since < answers.AGE_MS and redis.call('HLEN', key.answers) < answers.COUNT then return end
  redis.call('UNLINK', key.answers_old)
  if redis.call('EXISTS', key.answers) == 1 then redis.call('RENAME', key.answers, key.answers_old) end
  redis.call('HSET', key.meta, 'answers_since', partition.now)
end

-- Answers known under these names: name -> what was answered.
function answers.find(names)
  local found = {}
  if #names == 0 then return found end
  for _, generation in ipairs({key.answers_old, key.answers}) do
    local values = redis.call('HMGET', generation, unpack(names))
    for i, name in ipairs(names) do
      if values[i] then found[name] = values[i] end
    end
  end
  return found
end
