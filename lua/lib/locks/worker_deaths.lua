-- Which attempts count when locks end without their holder's word: they expire, or a subscription or an ownership ends.
-- Those count of which the holder has told that it had begun (`progress`). If it told so of nothing that it holds here, the oldest item
-- that it has received counts. All others were not tried. The locks of one dead holder may end in several calls, so the first end marks the
-- others, under `!POSITION` in `progress`: of a marked one only what the holder told counts. A renewal removes the mark: the holder lives.
-- CALL: ended = {}, bounced = {}
-- `ended` has the positions whose locks end in this call; `bounced` the token, by subid, from which on nothing has arrived: stanzas keep
-- their order.
local worker_deaths = {MOST = 1000}

-- Returns the field of the mark of an item.
function worker_deaths.mark(position)
  return '!' .. position
end

-- Returns what the holders of items told, and which are marked.
local function read(places)
  local fields, count = {}, #places
  for i, position in ipairs(places) do fields[i], fields[count + i] = position, worker_deaths.mark(position) end
  local found, marked = redis.call('HMGET', key.progress, unpack(fields)), {}
  for i = 1, count do marked[i] = found[count + i] end
  return found, marked
end

-- Returns whether the attempt counts; called before the lock ends.
function worker_deaths.counts(flight)
  call.worker_deaths_ended[flight.position] = true
  local told, judged = read({flight.position})
  local arrived = call.worker_deaths_bounced[flight.subid] or math.huge
  if judged[1] or tonumber(flight.token) >= arrived then return told[1] end
  local places, held, begun = held_locks.of(flight.subid, worker_deaths.MOST), {}, false
  budget.spend(#places / 4)
  local lines, marked = read(places)
  for i, other in ipairs(inflight.get_many(places)) do
    local is_held = other and (other.position == flight.position or not call.worker_deaths_ended[other.position])
    if is_held and not marked[i] and tonumber(other.token) < arrived then
      held[#held + 1], begun = other.position, begun or lines[i]
    end
  end
  local marks = {}
  for i, position in ipairs(held) do
    if position ~= flight.position and (begun or i > 1) then
      marks[#marks + 1], marks[#marks + 2] = worker_deaths.mark(position), ''
    end
  end
  if #marks > 0 then
    partition.turn_on('progress')
    redis.call('HSET', key.progress, unpack(marks))
  end
  return told[1] or not begun and held[1] == flight.position
end

-- A delivery has bounced, for nobody is there: returns whether work had begun on its item all the same, before it was sent again.
function worker_deaths.bounced(flight)
  local before = call.worker_deaths_bounced[flight.subid] or math.huge
  call.worker_deaths_ended[flight.position] = true
  call.worker_deaths_bounced[flight.subid] = math.min(before, tonumber(flight.token))
  return (progress.of(flight.position) or '') ~= ''
end

-- A holder that renews lives.
function worker_deaths.forget(position)
  if call.partition_before.progress then write_buffer.add('HDEL', key.progress, worker_deaths.mark(position)) end
end
