-- How far holders are with their items, as they tell with a renewal: position -> `time share note`, until the lock ends. `progress` in
-- `meta` is set once one has told.
local progress = {}

function progress.tell(position, text)
  if not call.partition_before.progress then
    partition.turn_on('progress')
    call.partition_before.progress = '1'
  end
  write_buffer.add('HSET', key.progress, position, call.partition_stamp .. ' ' .. text)
end

-- Returns the line of a locked item, empty when there is none.
function progress.of(position)
  return call.partition_before.progress and redis.call('HGET', key.progress, position) or ''
end
