SELECT current_setting('lock_timeout')
