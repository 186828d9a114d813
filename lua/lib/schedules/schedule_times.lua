-- When schedules of the node are due: `schedule_times` has those that will publish, by the time in ms. A frontend publishes for those that
-- are due and stores when they are due next. Until then they are looked at again, because the frontend may die.
local schedule_times = {AGAIN_MS = 5000}

function schedule_times.are_due()
  return redis.call('ZCOUNT', key.schedule_times, '-inf', call.partition_now) > 0
end

-- Returns when the partition needs a sweep: `due` or sooner.
function schedule_times.next(due)
  local first = tonumber(redis.call('ZRANGE', key.schedule_times, 0, 0, 'WITHSCORES')[2])
  if not first then return due end
  local at = first > call.partition_now and first or call.partition_now + schedule_times.AGAIN_MS
  return (due == 0 or at < due) and at or due
end
