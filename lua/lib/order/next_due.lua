-- When the partition next needs a sweep: a lock's deadline, the end of a delay, an item's expiry, a retry, the outbox, the age limit of the
-- log, the end of the owner's lease.
local next_due = {GRAIN_MS = 60000}

-- Returns when the oldest kept entry gets too old. Coarsely: a sweep for each entry would be a busy loop.
local function trim_time()
  local first = redis.call('XRANGE', key.log, '(' .. call.partition_trim, call.partition_cursor, 'COUNT', 1)[1]
  local ends = call.partition_options.keep_ms + (first and positions.split(first[1]) or call.partition_now)
  return math.max(ends, call.partition_now + math.min(next_due.GRAIN_MS, math.ceil(call.partition_options.keep_ms / 16)))
end

function next_due.time()
  local soonest = redis.call('ZRANGE', key.lock_deadlines, 0, 0, 'WITHSCORES')[2]
  soonest = soonest and tonumber(soonest) or 0
  local delayed = rare_keys.any() and redis.call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')[2]
  if delayed and (soonest == 0 or tonumber(delayed) < soonest) then soonest = tonumber(delayed) end
  local over = call.partition_before.hinted and redis.call('ZRANGE', key.expirations, 0, 0, 'WITHSCORES')[2]
  if over and (soonest == 0 or tonumber(over) < soonest) then soonest = tonumber(over) end
  local again = call.partition_before.confirms and redis.call('ZRANGE', key.retries, 0, 0, 'WITHSCORES')[2]
  if again and (soonest == 0 or tonumber(again) < soonest) then soonest = tonumber(again) end
  local next = (rare_keys.any() or call.partition_before.replies) and outbox.next()
  if next and (soonest == 0 or next < soonest) then soonest = next end
  if call.partition_options.keep_ms > 0 and call.partition_kept > 0 then
    local old = trim_time()
    if soonest == 0 or old < soonest then soonest = old end
  end
  local who = partition_owner.get()
  if who then
    local lease = who.clearing and call.partition_now or who.lease
    if soonest == 0 or lease < soonest then soonest = lease end
  end
  return soonest
end
