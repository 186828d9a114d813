-- When the partition next needs a visit: a lock's deadline, a delay's end, what to try or to hand over
-- again, and the end of its owner's lease.
-- NEEDS: deadlines delayed handover retries
--- @include partition owner
-- `retry_at` is when the first hand-over is to be taken up again; a script that has not looked says a whole time from now.
local due = {RETRY_MS = 5000}

function due.next()
  local soonest = redis.call('ZRANGE', key.deadlines, 0, 0, 'WITHSCORES')[2]
  soonest = soonest and tonumber(soonest) or 0
  local delayed = redis.call('ZRANGE', key.delayed, 0, 0, 'WITHSCORES')[2]
  if delayed and (soonest == 0 or tonumber(delayed) < soonest) then soonest = tonumber(delayed) end
  local again = partition.confirms and redis.call('ZRANGE', key.retries, 0, 0, 'WITHSCORES')[2]
  if again and (soonest == 0 or tonumber(again) < soonest) then soonest = tonumber(again) end
  if redis.call('EXISTS', key.handover) == 1 then
    local retry = due.retry_at or partition.now + due.RETRY_MS
    if soonest == 0 or retry < soonest then soonest = retry end
  end
  local who = owner.get()
  if who then
    local lease = who.clearing and partition.now or who.lease
    if soonest == 0 or lease < soonest then soonest = lease end
  end
  return soonest
end
