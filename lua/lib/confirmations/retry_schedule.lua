-- When an unconfirmed delivery is sent again: `retry` has the first and the longest pause in ms, and the number of retries.
local retry_schedule = {}

local function pause(tries)
  local first, longest = string.match(arg.retry, '^(%d+) (%d+) ')
  return math.min(tonumber(first) * 2 ^ (tries - 1), tonumber(longest))
end

function retry_schedule.attempts()
  return tonumber(string.match(arg.retry, '(%d+)$')) + 1
end

-- Records the number of tries, and when the next is due; `message` as in `confirmations`.
function retry_schedule.put(position, stage, tries, message)
  local record = string.format('%s %d', stage, tries)
  write_buffer.add('HSET', key.confirmations, position, message ~= '' and record .. ' ' .. message or record)
  write_buffer.add('ZADD', key.retries, string.format('%d', call.partition_now + pause(tries)), position)
end

-- Records the first try of a delivery and returns the lock's deadline. The time for an assured item starts when its receiver may begin,
-- so the first deadline leaves room for all tries.
function retry_schedule.begin(position, stage)
  if stage == 'unacknowledged' then return call.partition_deadline_text end
  retry_schedule.put(position, stage, 1, '')
  if stage == 'acknowledged' then return call.partition_deadline_text end
  local deadline = call.partition_deadline
  for tries = 1, retry_schedule.attempts() do deadline = deadline + pause(tries) end
  return string.format('%d', deadline)
end
