-- Remembers delivered messages, so that late copies are recognised (SX9): name -> digests of the messages delivered under it, the latest
-- first (SX10). A line that begins with `-`: the last message of that name is not delivered yet.
local delivered_ids = {DIGESTS = 16}

function delivered_ids.digest(record)
  return string.match(record, '^%S+ (%S+)')
end

local function of(name)
  return redis.call('HGET', key.delivered, name) or redis.call('HGET', key.delivered_old, name)
end

function delivered_ids.has(name, digest)
  local mark = of(name)
  return mark and string.find(mark, digest, 1, true)
end

function delivered_ids.is_delivered(name)
  local mark = of(name)
  return mark and string.sub(mark, 1, 1) ~= '-'
end

function delivered_ids.count()
  return redis.call('HLEN', key.delivered) + redis.call('HLEN', key.delivered_old)
end

-- Two generations of one window each, so that a line stays for at least one window; the empty name has the beginning of the window.
local function write(now, window, name, mark)
  local since = redis.call('HGET', key.delivered, '')
  if since and now - tonumber(since) >= window then
    redis.call('RENAME', key.delivered, key.delivered_old)
    since = false
  end
  redis.call('HSET', key.delivered, name, mark)
  if not since then
    redis.call('HSET', key.delivered, '', string.format('%d', now))
    redis.call('PEXPIRE', key.delivered, 2 * window)
  end
end

-- A delivered name is used again for another message.
function delivered_ids.reopen(now, window, name)
  local mark = of(name)
  if mark and string.sub(mark, 1, 1) ~= '-' then write(now, window, name, '-' .. mark) end
end

function delivered_ids.remember(now, window, name, digest)
  local digests = {digest}
  for earlier in string.gmatch(of(name) or '', '[^ -]+') do
    if #digests < delivered_ids.DIGESTS then digests[#digests + 1] = earlier end
  end
  write(now, window, name, table.concat(digests, ' '))
end
