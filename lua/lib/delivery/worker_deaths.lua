-- Which attempts count when locks end without their holder's word: they expire, deliveries bounce, or a subscription or an ownership ends.
-- Those count of which the holder has told that it had begun (`progress`). If it told so of nothing that it holds here, the oldest item
-- that it has received counts. All others were not tried. The locks of one dead holder may end in several calls, so `progress` has under
-- its subid the death that the first of them told of: `token deadline counted`. It concerns the locks up to this token that nobody has
-- renewed beyond this deadline; `counted` is the token of the one that counts although nothing was told of it, or 0.
-- CALL: noted = {}
-- `noted` has the subscribers with such a record that this call has met.
local worker_deaths = {MOST = 1000}

local function read(line)
  if not line then return nil end
  local token, deadline, counted = string.match(line, '^(%d+) (%d+) (%d+)$')
  return {token = tonumber(token), deadline = tonumber(deadline), counted = tonumber(counted)}
end

local function concerns(death, token, deadline)
  return death and token <= death.token and deadline <= death.deadline
end

-- Returns the death of a subscriber whose locks nothing has been noted of yet, and stores it if it concerns more than one lock. `past` is
-- an earlier death, whose locks are left out.
local function note(subid, past)
  local places, received = held_locks.of(subid, worker_deaths.MOST), 0
  local death = {token = call.partition_token, deadline = 0, counted = 0}
  local deadlines, told = redis.call('ZMSCORE', key.lock_deadlines, unpack(places)), redis.call('HMGET', key.progress, unpack(places))
  local begun = false
  for i, flight in ipairs(inflight.get_many(places)) do
    local token, deadline = flight and tonumber(flight.token), tonumber(deadlines[i] or 0)
    if flight and not inflight.is_unfetched(flight) and not concerns(past, token, deadline) then
      received, begun = received + 1, begun or told[i]
      death.deadline = math.max(death.deadline, deadline)
      if received == 1 then death.counted = token end
    end
  end
  if begun then death.counted = 0 end
  if received > 1 then
    call.worker_deaths_noted[subid] = true
    redis.call('HSET', key.progress, subid, string.format('%.0f %.0f %.0f', death.token, death.deadline, death.counted))
  end
  return death
end

-- Returns whether the attempt counts; called before the lock ends. What nobody has fetched was never an attempt.
function worker_deaths.counts(flight)
  if inflight.is_unfetched(flight) then return false end
  local lines = redis.call('HMGET', key.progress, flight.position, flight.subid)
  local death, token = read(lines[2]), tonumber(flight.token)
  if death then call.worker_deaths_noted[flight.subid] = true end
  if not death or not concerns(death, token, tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0)) then
    death = note(flight.subid, death)
  end
  return lines[1] or token == death.counted
end

-- Forgets the death of a subscriber that holds nothing.
function worker_deaths.forget(subid)
  if credit.lock_count(subid) == 0 then redis.call('HDEL', key.progress, subid) end
end

-- Forgets the deaths that this call has met and that concern nothing any more.
function worker_deaths.forget_complete()
  for subid in pairs(call.worker_deaths_noted) do worker_deaths.forget(subid) end
end
