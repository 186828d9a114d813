-- The locks of each subscriber: members `token position` with the token padded; the score is the subid. So the locks of one subscriber
-- are in the order in which they were made, and those after a token are found without reading the others.
local held_locks = {DIGITS = 16, STEP = 20}

function held_locks.member(token, position)
  -- Tokens have that many digits, except those of before 2001, which tests use.
  if #token < held_locks.DIGITS then token = string.rep('0', held_locks.DIGITS - #token) .. token end
  return token .. ' ' .. position
end

function held_locks.position(member)
  return string.sub(member, string.find(member, ' ', 1, true) + 1)
end

-- Returns the positions of up to `count` locks of a subscriber, the oldest first.
function held_locks.of(subid, count)
  local found = redis.call('ZRANGEBYSCORE', key.locks_by_subscriber, subid, subid, 'LIMIT', 0, count)
  for i, member in ipairs(found) do found[i] = held_locks.position(member) end
  return found
end

-- Returns the positions of the first `count` locks after a token. Reads from the newest lock back, in growing steps.
function held_locks.after(subid, token, count)
  local found, step = {}, 1
  repeat
    local asked = #found + step
    for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', key.locks_by_subscriber, subid, subid, 'LIMIT', #found, step)) do
      if tonumber(string.sub(member, 1, held_locks.DIGITS)) <= token then break end
      found[#found + 1] = member
    end
    step = math.max(held_locks.STEP, 2 * step)
  until #found < asked
  local places = {}
  for i = #found, math.max(1, #found - count + 1), -1 do places[#places + 1] = held_locks.position(found[i]) end
  return places
end
