-- How far holders are with their items, as they tell with a renewal: position -> `time share note`, until the lock ends. One that only
-- tells that it has begun gives neither share nor note. `progress` in `meta` is set once the hash was written. It also has the marks of
-- `worker_deaths`.
local progress = {}

function progress.tell(position, text)
  partition.turn_on('progress')
  write_buffer.add('HSET', key.progress, position, call.partition_stamp .. ' ' .. text)
end

-- Notes that work has begun, unless more is known.
function progress.begin(position)
  if (progress.of(position) or '') ~= '' then return end
  partition.turn_on('progress')
  write_buffer.add('HSET', key.progress, position, call.partition_stamp .. ' - ')
end

-- Returns the line of a locked item, empty when there is none.
function progress.of(position)
  return call.partition_before.progress and redis.call('HGET', key.progress, position) or ''
end
