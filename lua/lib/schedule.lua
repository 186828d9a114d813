-- When what is not confirmed is sent again: `retry` gives the first pause and the longest in ms, and how often.
-- NEEDS: unconfirmed retries
--- @include partition writes
local schedule = {}

local function pause(tries)
  local first, longest = string.match(arg.retry, '^(%d+) (%d+) ')
  return math.min(tonumber(first) * 2 ^ (tries - 1), tonumber(longest))
end

function schedule.tries()
  return tonumber(string.match(arg.retry, '(%d+)$')) + 1
end

-- Records that something is sent for the how-many-th time.
function schedule.put(position, stage, tries)
  writes.add('HSET', key.unconfirmed, position, string.format('%s %d', stage, tries))
  writes.add('ZADD', key.retries, string.format('%d', partition.now + pause(tries)), position)
end

-- Records the first try of what is to be confirmed and gives the lock's deadline. The time for an assured item starts when
-- its receiver may begin, so until then the deadline leaves room for every try.
function schedule.begin(position, stage)
  if stage == 'unacknowledged' or stage == 'pulled' then return partition.deadline_text end
  schedule.put(position, stage, 1)
  if stage == 'acknowledged' then return partition.deadline_text end
  local deadline = partition.deadline
  for tries = 1, schedule.tries() do deadline = deadline + pause(tries) end
  return string.format('%d', deadline)
end
