-- What a repeated id means where it is no repeat (X1).
-- NEEDS: log replaced parked history ready delayed
--- @include partition writes entries items resting intake once ordering passed ranks hints
local replace = {}

-- A waiting item begins anew with the hints of what replaces it; a delay that a worker asked for stays.
local function anew(position, before, row)
  local was = hints.of(before).after
  hints.leave(position, before)
  writes.flush()
  hints.stay(position, row)
  if hints.rests(row) then
    redis.call('ZREM', key.ready, position)
    hints.enter(position, row)
  elseif was > partition.now and tonumber(redis.call('ZSCORE', key.delayed, position) or 0) == was then
    redis.call('ZREM', key.delayed, position)
    if not resting.comes(position) then redis.call('ZADD', hints.place(position)) end
  end
  writes.flush()
end

-- A waiting item is replaced in place and starts anew; a locked one gets a parked successor.
function replace.run(row)
  local known = intake.known[row.item]
  local position = known.position
  local text = hints.begin(row)
  local before = not known.flight and partition.hinted and entries.current(position)
  if before and ranks.of(position) ~= hints.of({hints = text}).rank then
    -- Places are within a rank: with another it is a new item.
    items.drop(position, before)
    ordering.done(position)
    writes.flush()
    intake.count = intake.count - 1
    return intake.append(row)
  end
  row.hints = text
  once.remember(row)
  local beside = known.flight and key.parked or key.replaced
  local earlier = redis.call('HGET', beside, position)
  if earlier then redis.call('XDEL', key.log, earlier) end
  local log_id = entries.append(row, position)
  redis.call('HSET', beside, position, log_id)
  if not known.flight then
    entries.any_replaced = true
    redis.call('HDEL', key.history, position)
    if before then anew(position, before, row) end
    -- What was found of the payload before holds no more.
    if passed.stands(position) then
      passed.remove(position)
      redis.call('ZADD', hints.place(position))
    end
  end
end
