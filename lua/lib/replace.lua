-- What a repeated id means where it is no repeat (X1): a waiting item is replaced in place and starts anew; a locked one gets a
-- parked successor.
-- NEEDS: log replaced parked history
--- @include partition writes entries items intake once ordering passed hints times
local replace = {}

function replace.run(row)
  local known = intake.known[row.item]
  local position = known.position
  if row.hints ~= '' then partition.turn_on('hinted') end
  local before = partition.hinted and not known.flight and entries.current(position)
  if before and hints.rank(position) ~= hints.of(row).rank then
    -- Places are within a rank: with another it is a new item.
    items.drop(position, before)
    ordering.done(position)
    writes.flush()
    intake.count = intake.count - 1
    return intake.append(row)
  end
  once.remember(row)
  local beside = known.flight and key.parked or key.replaced
  local earlier = redis.call('HGET', beside, position)
  if earlier then redis.call('XDEL', key.log, earlier) end
  local log_id = entries.append(row, position)
  redis.call('HSET', beside, position, log_id)
  if not known.flight then
    entries.any_replaced = true
    redis.call('HDEL', key.history, position)
    if before then times.anew(position, before, row) end
    -- What was found of the payload before holds no more.
    if partition.selects and passed.stands(position) then
      passed.remove(position)
      redis.call('ZADD', ordering.place(position))
    end
  end
end
