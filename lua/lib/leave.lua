-- How a subscriber leaves, and how all that it holds is given back at once.
-- NEEDS: subscribers turns resting held shares leases
--- @include writes flights credit ending window disown pools passed
local leave = {CHUNK = 300}

function leave.stop_working(subid)
  redis.call('ZREM', key.turns, subid)
  redis.call('ZREM', key.resting, subid)
  redis.call('HDEL', key.shares, subid)
  passed.choose(subid, '')
end

-- What it owned is free; with `kept` and `reason` as `disown.of` has them.
function leave.remove(subid, kept, reason)
  disown.of(subid, kept, reason)
  leave.stop_working(subid)
  window.forget(subid)
  local pool = pools.of(subid)
  if pool then pools.seat(pool, -1) end
  redis.call('ZREM', key.leases, subid)
  return redis.call('HDEL', key.subscribers, subid) == 1
end

-- Gives back up to `CHUNK` items, or fewer, and tells how many are left: one script must not run for long.
function leave.release(subid, kind, reason, most)
  local places = redis.call('ZRANGEBYSCORE', key.held, subid, subid, 'LIMIT', 0, most or leave.CHUNK)
  for _, flight in ipairs(flights.at(places)) do
    if flight then ending.release(flight, kind, {reason = reason}) end
  end
  writes.flush()
  return credit.held(subid), #places
end
