-- When a delivery that is not confirmed is sent again: `retry` has the first pause and the longest one in ms, and how often.
local retry_schedule = {ASIDE_MS = 5000}

local function pause(tries)
  local first, longest = string.match(arg.retry, '^(%d+) (%d+) ')
  return math.min(tonumber(first) * 2 ^ (tries - 1), tonumber(longest))
end

function retry_schedule.attempts()
  return tonumber(string.match(arg.retry, '(%d+)$')) + 1
end

-- Records that something is sent for the how-many-th time.
function retry_schedule.put(position, stage, tries)
  write_buffer.add('HSET', key.confirmations, position, string.format('%s %d', stage, tries))
  write_buffer.add('ZADD', key.retries, string.format('%d', call.partition_now + pause(tries)), position)
end

-- Records the first try of what is to be confirmed and gives the lock's deadline. The time for an assured item starts when
-- its receiver may begin, so until then the deadline leaves room for every try. A lock of an item that is to be fetched starts
-- with the fetch; until then the item is set aside for `ASIDE_MS`, or as long as a lock lasts if that is less.
function retry_schedule.begin(position, stage)
  if stage == 'unacknowledged' then return call.partition_deadline_text end
  if stage == 'pulled' then
    return string.format('%d', math.min(call.partition_deadline, call.partition_now + retry_schedule.ASIDE_MS))
  end
  retry_schedule.put(position, stage, 1)
  if stage == 'acknowledged' then return call.partition_deadline_text end
  local deadline = call.partition_deadline
  for tries = 1, retry_schedule.attempts() do deadline = deadline + pause(tries) end
  return string.format('%d', deadline)
end
